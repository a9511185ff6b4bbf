// Mark tables that are wider than their box. On a small screen, book.css shows each of their rows as a labeled block.
function stack() {
  for (const table of document.querySelectorAll("article table:has(thead)")) {
    table.classList.remove("cards");
    const box = table.parentElement;
    table.classList.toggle("cards", box.scrollWidth > box.clientWidth);
  }
}
// Make boxes that scroll sideways reachable by keyboard, and mark them for book.css.
function reachable() {
  for (const box of document.querySelectorAll("article *")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(box).overflowX);
    const goesOn = scrolls && box.scrollWidth > box.clientWidth;
    box.classList.toggle("goes-on", goesOn);
    if (goesOn) box.tabIndex = 0;
  }
}
for (const event of ["load", "resize"]) {
  addEventListener(event, stack);
  addEventListener(event, reachable);
}

// Show a link that makes Perfetto's page fetch a trace from this site. Perfetto requires https and a server that allows it:
// https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui. Over http, it accepts only the address of its own
// tool. A page may read all headers from its own server, so the site doesn't need to know its address.
async function offerPerfetto(link) {
  const address = new URL(link.closest("[data-trace]").dataset.trace, location);
  if (address.protocol !== "https:" && address.origin !== "http://127.0.0.1:9001") return;
  const viewer = new URL(link.dataset.viewer);
  const answer = await fetch(address, { method: "HEAD" });
  const allowed = answer.headers.get("Access-Control-Allow-Origin");
  if (!answer.ok || !["*", viewer.origin].includes(allowed)) return;
  link.href = `${viewer}#!/?url=${encodeURIComponent(address)}`;
  link.hidden = false;
}
const offers = Promise.all(Array.from(document.querySelectorAll("[data-viewer]"), offerPerfetto));
