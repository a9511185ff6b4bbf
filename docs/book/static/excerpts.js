// For an excerpt Sphinx would read each page that it found, which a browser refuses for files. Here a script holds
// the texts of all pages: SEARCH_TEXTS[page] is a list of [anchor, title, text, code], one for each section.
const AROUND = 130; // characters shown before and after the first word that was found
// Sphinx gives a page at most 15 points, wherever its words are. These are added for each word in a title or in a
// heading, and for each time that the text has one.
const TITLE = 40, HEADING = 20, MENTIONS = 15;
// A learner looks for a lesson or for the meaning of a word, and for what changed last of all.
const PLACES = [[/^docs\/glossary$/, 110], [/^notebooks\//, 85], [/CHANGELOG$/, -200]];
const stems = (new URLSearchParams(location.search).get("q") ?? "")
  .toLowerCase().split(/[^\p{Letter}\p{Number}_]+/u).filter(word => word && !stopwords.has(word))
  .map(word => new Stemmer().stemWord(word));

const holds = text => stems.filter(stem => text.toLowerCase().includes(stem)).length;

const mentions = text => stems.reduce((sum, stem) => sum + text.toLowerCase().split(stem).length - 1, 0);

Scorer.score = ([page, title, , , score]) => {
  const sections = SEARCH_TEXTS[`${page}.html`] ?? [];
  const [headings, texts] = [1, 2].map(part => sections.map(section => section[part]).join(" "));
  const place = PLACES.find(([name]) => name.test(page))?.[1] ?? 0;
  return score + place + TITLE * holds(title) + HEADING * holds(headings) + Math.min(MENTIONS, mentions(texts));
};

// Sphinx lists a page once for its text and again for each title in it. The last is the best.
const performSearch = Search._performSearch;
Search._performSearch = (...terms) => {
  const found = performSearch(...terms);
  return found.filter(([page], place) => place === found.findLastIndex(([other]) => other === page));
};

// The text around the first place with most of the words near each other, cut between words.
function excerpt(text) {
  const low = text.toLowerCase();
  const places = stems.flatMap(stem => low.split(stem).slice(0, -1).map((_, number, parts) =>
    parts.slice(0, number + 1).join(stem).length));
  const near = place => holds(text.slice(Math.max(0, place - AROUND), place + AROUND));
  const best = places.sort((one, other) => one - other).reduce((a, b) => near(b) > near(a) ? b : a, places[0] ?? 0);
  const first = best > AROUND ? text.indexOf(" ", best - AROUND) + 1 : 0;
  const last = best + AROUND < text.length ? text.lastIndexOf(" ", best + AROUND) : text.length;
  return (first ? "… " : "") + text.slice(first, last) + (last < text.length ? " …" : "");
}

// The same text, with the words of the search marked.
const marked = text => text.split(/(\s+)/).map(word => holds(word)
  ? Object.assign(document.createElement("mark"), { textContent: word }) : word);

// Words in a heading or in the text count more than those in code or its output.
const fit = ([, title, text, code]) => 2 * holds(title + " " + text) + holds(code);

function addExcerpt(item) {
  const link = item.querySelector("a");
  const [page, anchor] = link.getAttribute("href").split("#");
  const sections = SEARCH_TEXTS[page] ?? [];
  const found = sections.find(([id]) => id === anchor)
    ?? sections.reduce((best, next) => fit(next) > fit(best) ? next : best, sections[0]);
  if (!found) return;
  const [id, title, text, code] = found;
  if (!anchor && title !== link.textContent) {
    item.append(" › ", Object.assign(document.createElement("a"), { href: `${page}#${id}`, textContent: title }));
  }
  const words = item.appendChild(Object.assign(document.createElement("p"), { className: "context" }));
  words.append(...marked(excerpt(holds(text) || !holds(code) ? text : code)));
}

new MutationObserver(changes => changes.flatMap(change => [...change.addedNodes])
  .filter(node => node.nodeName === "LI").forEach(addExcerpt))
  .observe(document.getElementById("search-results"), { childList: true, subtree: true });
