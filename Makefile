# make lab   sets everything up and opens the first lesson
# make test  sets everything up, the developers' tools too, and runs all tests, notebooks included
#            (make test-course and make test-tidyprof: those of one of the two packages)
# TORCH=rocm7.2, cu130, cpu or registry takes another build of torch than the one that fits this machine. It is asked
# for once: later targets keep the build that is installed.

PYTHON ?= python3
TORCH ?= $(or $(patsubst .venv/.ready-%,%,$(firstword $(wildcard .venv/.ready-*))),auto)
BIN := .venv/bin
READY := .venv/.ready-$(TORCH)
# Once set-up has ended it holds the path of .venv, which all its programs begin with. Set-up tells where that is another.
IS_HERE := $(shell [ "$$(cat '$(READY)' 2>/dev/null)" -ef . ] && echo yes)
NOTEBOOKS = $(BIN)/python -m pytest --nbmake --nbmake-timeout=900 --numprocesses $(AT_ONCE) --dist worksteal
AT_ONCE := 2
ALONE := -p tests.lessons_alone
TIDYPROF := packages/tidyprof
TESTS := tests
PROJECTS := pyproject.toml $(TIDYPROF)/pyproject.toml
# A word for the shell, whatever is in it
quoted = '$(subst ','\'',$(1))'
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-root)

# Where it is set, each of the thousand programs that the tests start would compile the course anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lab compiler mirror quick test test-course test-tidyprof long lint lessons notebooks book slides bench tables figures gpu-check constraints clean anew

help: ## show this list
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

setup: $(READY) ## make .venv with what a learner needs

$(READY): $(PROJECTS) constraints.txt scripts/dev/setup $(if $(IS_HERE),,anew)
	PYTHON=$(call quoted,$(PYTHON)) TORCH=$(call quoted,$(TORCH)) scripts/dev/setup

# What only some targets need: the developers' tools, and those that make the site
.venv/.dev .venv/.book: .venv/.%: $(PROJECTS) constraints.txt | setup
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[$*]'
	touch $@

lab: setup ## open lesson 00 in JupyterLab
	$(BIN)/jupyter lab $(ROOT_FLAG) --LanguageServerManager.autodetect=False --ServerApp.root_dir=$(call quoted,$(CURDIR)) --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb

# A torch for a GPU brings a Triton of its own, over which no other may be installed.
compiler: setup ## add Triton where torch has none, so that lesson 16 compiles
	$(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/uv pip install --quiet --python $(BIN)/python \
	  --constraint constraints.txt --editable '.[compiler]'

mirror: setup ## fetch the public recordings that tests read (18 MB), or copy them: FROM=FOLDER
	$(BIN)/python -m tools.mirror $(if $(FROM),--from $(call quoted,$(FROM)))

quick: .venv/.dev lint ## run the tests that need no torch, Slurm or browser: readers, analyses, packages, pages
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile tests/book tests/test_*.py \
	  $(addprefix $(TIDYPROF)/tests/tidyprof_tests/,analyses gate io names readers tables)

test: TESTS += $(TIDYPROF)/tests
test: test-course ## run every test and every lesson, make the book, and look at all of it in a browser

# Four at a time on two cores, since many tests wait for Slurm
test-course: .venv/.dev .venv/.book lint ## the same without the tests of tidyprof
	$(BIN)/python -m tools.notebooks build --check
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=900 --numprocesses 4 --dist loadfile --no-loadscope-reorder \
	  --durations 40 $(ALONE) --overwrite build/combined $(TESTS)
	$(BIN)/python -m tools.case_lines
	$(BIN)/python -m docs.book
	$(BIN)/python -m pytest --numprocesses 2 --durations 10 tests/browser/check_*.py

test-tidyprof: .venv/.dev lint ## run the tests of tidyprof alone
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --durations 10 $(TIDYPROF)/tests

lessons: .venv/.dev ## run every lesson without network, each cell as shipped and as solved; it stays in build/combined
	$(BIN)/python -m tools.notebooks build --check
	$(NOTEBOOKS) $(ALONE) --overwrite build/combined
	$(BIN)/python -m tools.case_lines

lesson-%: .venv/.dev ## build and run one lesson, as in make lesson-04, each cell as shipped and as solved
	$(BIN)/python -m tools.notebooks build
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=900 $(ALONE) --overwrite build/combined/$*_*.ipynb

long: export PROFLAB_LONG := 1
long: test ## test with ten times the damaged files, then run the lessons as shipped, and on the whole recordings
	$(NOTEBOOKS) $(ALONE) notebooks
	PROFLAB_RECORDINGS="$$($(BIN)/python -m tools.mirror --where)" OMP_NUM_THREADS=1 PROFLAB_STRICT=1 \
	  $(NOTEBOOKS) build/combined

lint: .venv/.dev ## check the style of code, notebooks and shell scripts, and the types in signatures
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/ruff format --check --line-length 88 lessons/*/lesson.py lessons/*/workshop.py snippets/*.py
	$(BIN)/mypy

notebooks: .venv/.dev ## generate notebooks/ from lessons/, and pages of docs from their tables
	$(BIN)/python -m tools.notebooks build
	$(BIN)/python -m tools.release_page
	$(BIN)/python -m tools.issue_page
	$(BIN)/python -m tools.who_ran

# What a lesson measures, and others read, is of a machine that does nothing else.
book slides: AT_ONCE := 1
book: lessons .venv/.book ## run the lessons, one by one, and make the site of them and of docs in build/book/html
	$(BIN)/python -m docs.book

slides: lessons .venv/.book ## run the lessons, and make slides of each and the cheat sheet, one page of A4, in build/handouts
	$(BIN)/python -m docs.book.handouts

bench: .venv/.dev ## measure what the course claims about speed (half an hour)
	$(BIN)/python -m pytest benchmarks/bench_*.py $(TIDYPROF)/benchmarks/bench_*.py -s --benchmark-disable-gc -p no:cacheprovider

tables: .venv/.dev ## write triage's tables of files into docs (a minute)
	$(BIN)/python -m benchmarks.bench_triage

figures: .venv/.dev ## write the figures of the gate and many ranks into docs (an hour)
	$(BIN)/python -m benchmarks.bench_gate
	$(BIN)/python -m benchmarks.bench_ranks

gpu-check: setup ## on a machine with a GPU: try everything on it in half an hour (or MINUTES), and pack one archive to send
	$(BIN)/python -m tools.gpu_check $(if $(MINUTES),--minutes $(MINUTES))

constraints: setup ## write the installed versions to constraints.txt
	scripts/dev/freeze

clean: ## remove everything that make has made
	rm -rf .venv build runs notebooks/runs
