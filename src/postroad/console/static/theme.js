// Before the page is drawn, so that a dark page never flashes white.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
