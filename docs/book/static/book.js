// What scrolls sideways has to be reached by keyboard, too.
function reachable() {
  for (const box of document.querySelectorAll("article *")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(box).overflowX);
    if (scrolls && box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
