// @ts-check
/** How the dashboard looks; kept in this browser. */

export const THEMES = /** @type {const} */ (["system", "light", "dark", "contrast"]);

/** What is kept in this browser; nothing where it keeps nothing.
 * @param {string} name @param {string} otherwise */
export function kept(name, otherwise) {
  try {
    return localStorage.getItem(`taskmq.${name}`) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {string} value */
export function keep(name, value) {
  try {
    localStorage.setItem(`taskmq.${name}`, value);
  } catch {
    // Then it holds for as long as the page is open.
  }
}

/** @param {string} theme */
export function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  keep("theme", theme);
}

export const startTheme = () => setTheme(kept("theme", "system"));
