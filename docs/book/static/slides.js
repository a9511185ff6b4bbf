// Keys that lead on and back; what is little on its slide becomes larger, and what is too much smaller.
const slides = [...document.querySelectorAll("section")];
const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
const fit = () => slides.forEach((slide) => {
  const content = slide.firstElementChild;
  for (let percent = 125; percent >= 75; percent -= 5) {
    content.style.zoom = percent / 100;
    if (slide.scrollHeight <= slide.clientHeight && slide.scrollWidth <= slide.clientWidth) break;
  }
});
addEventListener("keydown", (event) => {
  const step = steps[event.key];
  if (!step || event.target.closest("summary")) return;
  event.preventDefault();
  const here = Math.round(scrollY / innerHeight);
  slides[Math.min(Math.max(here + step, 0), slides.length - 1)].scrollIntoView();
});
addEventListener("load", fit);
addEventListener("resize", fit);
