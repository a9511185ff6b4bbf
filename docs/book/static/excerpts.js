// Sphinx gives a page at most 15 points, wherever its words are, and for an excerpt it would read each page that it
// found, which a browser refuses for files. Here a script holds the texts of all pages: SEARCH_TEXTS[page] is a list of
// [anchor, title, text, code], one for each section, in lines.
const AROUND = 130; // characters shown before and after the first word that was found
// Points for all words in a title or in the name of a file, in a heading, in a line of the text or of code, which count
// twice in the order of the search, and at most for how often the text has them. One of two equal words gets a quarter.
const TITLE = 800, HEADING = 400, LINE = 100, CODE = 50, MENTIONS = 40;
// Among equals a learner looks for a lesson or for the first page, and for what changed last of all.
const PLACES = [[/^notebooks\/|^index$/, 30], [/CHANGELOG$/, -2000]];
const GLOSSARY = "docs/glossary"; // A line that begins with the words tells what they mean, as a page with that title.

const WORD = /([\p{L}\p{N}_]+)/gu;
function remembered(make) {
  const made = new Map();
  return text => made.get(text) ?? made.set(text, make(text)).get(text);
}
const stemmer = new Stemmer();
const stem = remembered(word => stemmer.stemWord(word.toLowerCase()));
// A text as the stems of its words, each between spaces.
const stems = remembered(text => ` ${(text.match(WORD) ?? []).map(stem).join(" ")} `);

const query = new URLSearchParams(location.search).get("q") ?? "";
const wanted = [...Search._parseQuery(query)[1]], inOrder = stems(query).trim();
let edge = " "; // of a word; none where parts of words are looked for

const count = (text, words) => stems(text).split(edge + words + edge).length - 1;
const holds = text => wanted.filter(word => count(text, word)).length;
// The fewer pages have a word, the more it counts: "model" stands in most of them, "roofline" in few.
const pagesWith = word => [Search._index.terms[word] ?? []].flat().length || 1;
const rarity = remembered(word => Math.log((1 + Search._index.docnames.length) / pagesWith(word)));
const weight = words => words.reduce((sum, word) => sum + rarity(word), 0);
const begins = text => stems(text).startsWith(` ${inOrder}${edge}`);
const share = text => weight(wanted.filter(word => count(text, word))) / (weight(wanted) || 1);
const fit = text => share(text) ** 2 + (count(text, inOrder) > 0) + begins(text) / 10;
const best = texts => Math.max(0, ...texts.map(fit));
const mentions = text => Math.min(MENTIONS, wanted.reduce((sum, word) => sum + count(text, word), 0));

// The lines of a section with their points.
const lines = ([, , text, code]) => [[text, LINE], [code, CODE]].flatMap(([part, worth]) =>
  part.split("\n").map(line => [line, worth * fit(line)]));
const highest = (all, points) => all.reduce((a, b) => points(b) > points(a) ? b : a);

function pointsOf(sections) {
  const [headings, texts] = [1, 2].map(part => sections.map(section => section[part]));
  return HEADING * best(headings) + Math.max(0, ...sections.flatMap(lines).map(([, points]) => points))
    + mentions(texts.join(" "));
}

function pointsOfPage(page) {
  const sections = SEARCH_TEXTS[`${page}.html`] ?? [];
  const meanings = page === GLOSSARY ? sections.flatMap(([, , text]) => text.split("\n")).filter(begins) : [];
  const titles = [page.split("/").pop().replaceAll("_", " "), sections[0]?.[1] ?? "", ...meanings];
  return TITLE * best(titles) + pointsOf(sections);
}

Scorer.score = ([page, title, , , score]) =>
  score + fit(title) + pointsOfPage(page) + (PLACES.find(([name]) => name.test(page))?.[1] ?? 0);

// Sphinx lists a page once for its text and again for each title in it, the best last. Pages with parts of the words
// alone are left out, unless there are no others.
const performSearch = Search._performSearch;
Search._performSearch = (...terms) => {
  const found = performSearch(...terms).filter(([page]) => !edge || pointsOfPage(page));
  if (edge && !found.length) {
    edge = "";
    return Search._performSearch(...terms);
  }
  return found.filter(([page], place) => place === found.findLastIndex(([other]) => other === page));
};

// The text around the first place with most of the words near each other, from the beginning of its sentence.
function excerpt(line) {
  const places = [...line.matchAll(WORD)].filter(([word]) => holds(word)).map(word => word.index);
  const near = place => fit(line.slice(place, place + AROUND));
  const at = places.length ? highest(places, near) : 0;
  const sentence = Math.max(...[". ", "? ", "! "].map(end => (end + line.slice(0, at)).lastIndexOf(end)));
  const first = at - sentence > AROUND ? line.indexOf(" ", at - AROUND) + 1 : sentence;
  const last = first + 2 * AROUND < line.length ? line.lastIndexOf(" ", first + 2 * AROUND) : line.length;
  return (first ? "… " : "") + line.slice(first, last) + (last < line.length ? " …" : "");
}

// The same text, with the words of the search marked: where they stand in its order, as one.
function marked(text) {
  const parts = text.split(WORD), length = 2 * (query.match(WORD) ?? []).length - 1;
  const nodes = [];
  while (parts.length) {
    const words = parts.splice(0, begins(parts.slice(0, length).join("")) ? length : 1).join("");
    nodes.push(holds(words) ? Object.assign(document.createElement("mark"), { textContent: words }) : words);
  }
  return nodes;
}

function addExcerpt(item) {
  const link = item.querySelector("a");
  const [page, anchor] = link.getAttribute("href").split("#");
  const sections = SEARCH_TEXTS[page];
  if (!sections?.length) return;
  const section = sections.find(([id]) => id === anchor) ?? highest(sections, one => pointsOf([one]));
  const [id, title] = section;
  if (!anchor && title !== link.textContent) {
    item.append(" › ", Object.assign(document.createElement("a"), { href: `${page}#${id}`, textContent: title }));
  }
  const [line] = highest(lines(section), ([, points]) => points);
  if (!line) return;
  const words = item.appendChild(Object.assign(document.createElement("p"), { className: "context" }));
  words.append(...marked(excerpt(line)));
}

new MutationObserver(changes => changes.flatMap(change => [...change.addedNodes])
  .filter(node => node.nodeName === "LI").forEach(addExcerpt))
  .observe(document.getElementById("search-results"), { childList: true, subtree: true });
