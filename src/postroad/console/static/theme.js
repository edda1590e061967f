// Runs before the page is drawn, so that a dark page never flashes white.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;

// Without TLS, a login is bound to a path that only this browser knows and no program at another port learns. A visit
// of the login page without that path is led to it.
const { base, fault } = document.documentElement.dataset;
const home = localStorage.getItem("home");
const here = location.pathname.split("/login")[0];
if (base) localStorage.setItem("home", base);
else if (home && (home === here || fault !== undefined)) localStorage.removeItem("home"); // that login has ended
else if (home && home.startsWith("/~") && location.pathname.endsWith("/login")) {
  location.replace(home + (new URLSearchParams(location.search).get("next") || "/"));
}
