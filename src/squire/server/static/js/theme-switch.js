// Dark or light: follows the system until someone chooses.

export function themeSwitch(button) {
	const root = document.documentElement;
	const system = matchMedia("(prefers-color-scheme: dark)");
	const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
	const show = () => {
		button.ariaPressed = String(isDark());
		button.title = isDark() ? "Light colours" : "Dark colours";
	};
	button.addEventListener("click", () => {
		root.dataset.theme = isDark() ? "light" : "dark";
		try {
			localStorage.setItem("squire-theme", root.dataset.theme);
		} catch {
			// then the choice lasts for this page
		}
		show();
	});
	system.addEventListener("change", show);
	show();
}
