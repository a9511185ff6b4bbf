// Lunr ranks the sections of all pages by the words of a search. SEARCH_TEXTS[page] is a list of [anchor, title, text,
// code], one for each section, in lines. It is a script because a page that was opened as a file can't read other files.
const RESULTS = 20;
const AROUND = 130; // characters shown before and after the first word found
const BOOST = { title: 6, also: 4, page: 1, text: 1, code: 0.3 };
const ALSO = /^Also described as: (.*)$/m; // the words of users, which a known issue lists
const START_OF_WORD = 0.4; // the weight of a longer word, such as hipMemcpyAsync for hipMemcpy
const LAST = /CHANGELOG|^index|docs\/contributors/; // pages for contributors follow pages for users
const LAST_BOOST = 0.5;
const GLOSSARY = "docs/glossary.html";

const query = new URLSearchParams(location.search).get("q") ?? "";
const results = document.getElementById("search-results");

// Words are letters, digits and underscores, as in option names and file names.
lunr.tokenizer.separator = /[^\p{L}\p{N}_]+/u;

// Each line of the glossary explains one term, so it is found like a section.
const pieces = (page, text) => page === GLOSSARY ? text.split("\n") : [text];

const sections = Object.entries(SEARCH_TEXTS).flatMap(([page, parts]) =>
  parts.flatMap(([anchor, title, all, code]) => pieces(page, all).map(text => ({
    address: `${page}#${anchor}`, page: parts[0][1], title, text, code, also: ALSO.exec(text)?.[1] ?? "",
    last: LAST.test(page),
  }))));

const index = lunr(function () {
  this.ref("number");
  this.metadataWhitelist = ["position"];
  Object.entries(BOOST).forEach(([name, boost]) => this.field(name, { boost }));
  sections.forEach((section, number) => this.add({ ...section, number }, { boost: section.last ? LAST_BOOST : 1 }));
});

function found() {
  const words = lunr.tokenizer(query).filter(word => word.toString() && lunr.stopWordFilter(word));
  return index.query(asked => words.forEach(word => {
    asked.term(word.toString(), {});
    asked.term(word.toString(), {
      boost: START_OF_WORD, usePipeline: false, wildcard: lunr.Query.wildcard.TRAILING,
    });
  }));
}

function element(name, text, properties = {}) {
  return Object.assign(document.createElement(name), { textContent: text, ...properties });
}

// The text around the first word found, with the words marked.
function excerpt(text, places) {
  const [first] = places[0];
  const start = first > AROUND ? text.lastIndexOf(" ", first - AROUND) + 1 : 0;
  const end = first + AROUND < text.length ? text.lastIndexOf(" ", first + 2 * AROUND) : text.length;
  const paragraph = element("p", start ? "… " : "", { className: "context" });
  let at = start;
  for (const [place, length] of places.filter(([place, length]) => place + length <= end)) {
    if (place < at) continue;
    paragraph.append(text.slice(at, place), element("mark", text.slice(place, place + length)));
    at = place + length;
  }
  paragraph.append(text.slice(at, end), end < text.length ? " …" : "");
  return paragraph;
}

function shown({ ref, matchData }) {
  const section = sections[ref];
  const item = element("li", "");
  item.append(element("a", section.title, { href: section.address }));
  if (section.title !== section.page) item.append(element("span", ` in ${section.page}`));
  const places = Object.values(matchData.metadata).flatMap(fields => fields.text?.position ?? []);
  if (places.length) item.append(excerpt(section.text, places.sort(([a], [b]) => a - b)));
  return item;
}

const all = query ? found() : [];
results.append(element("p", all.length ? `${all.length} sections contain words from “${query}”.`
  : query && `No section contains a word from “${query}”. Try the tool's or the error's name.`));
results.append(...[element("ul", "", { className: "search" })]);
results.lastChild.append(...all.slice(0, RESULTS).map(shown));
