// Without this script every mapping's section is shown, and the points are links to them.
const all = Array.from(document.querySelectorAll("[data-mapping]"));
function choose(number) {
  for (const element of all) {
    const chosen = element.dataset.mapping === number;
    element.classList.toggle("chosen", chosen);
    if (element.tagName === "a" || element.tagName === "A") {
      if (chosen) { element.setAttribute("aria-current", "true"); }
      else { element.removeAttribute("aria-current"); }
    }
  }
}
function fromAddress() {
  const match = /^#mapping-(\d+)$/.exec(window.location.hash);
  const known = match && document.getElementById("mapping-" + match[1]);
  choose(known ? match[1] : document.getElementById("details").dataset.recommended);
}
document.documentElement.classList.add("enhanced");
document.addEventListener("click", function (event) {
  const link = event.target.closest("a[data-mapping]");
  if (!link) { return; }
  event.preventDefault();
  choose(link.dataset.mapping);
  history.replaceState(null, "", "#mapping-" + link.dataset.mapping);
  const details = document.getElementById("mapping-" + link.dataset.mapping);
  const box = details.getBoundingClientRect();
  if (link.closest("table") || box.top > window.innerHeight) {
    details.scrollIntoView({ block: "nearest" });
  }
});
window.addEventListener("hashchange", fromAddress);
fromAddress();
