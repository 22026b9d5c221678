// A classic script in the head: the colours are there before the first paint. Without a choice, the system's hold.
(() => {
  const read = () => {
    try {
      return localStorage.getItem("squire-theme");
    } catch {
      return null; // storage may be forbidden
    }
  };
  const chosen = read();
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
