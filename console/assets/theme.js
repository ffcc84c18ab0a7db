// Sets the colours before the first paint. A classic script in the head: a module would run after it.
(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem('terrane.theme');
  } catch (error) {
    // Storage is forbidden in this browser: the system's preference holds.
    chosen = null;
  }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
