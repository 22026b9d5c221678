// A classic script in the head, so that the colours are set before the first paint. Default: the system's.
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
