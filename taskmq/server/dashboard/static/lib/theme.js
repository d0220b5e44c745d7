// @ts-check
/** The theme and other settings, stored in this browser. */

export const THEMES = /** @type {const} */ (["system", "light", "dark", "contrast"]);

/** Read a setting from this browser; returns the default if nothing is stored.
 * @param {string} name @param {string} otherwise */
export function readSetting(name, otherwise) {
  try {
    return localStorage.getItem(`taskmq.${name}`) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {string} value */
export function saveSetting(name, value) {
  try {
    localStorage.setItem(`taskmq.${name}`, value);
  } catch {
    // Without storage, the setting lasts until the page is closed.
  }
}

/** @param {string} theme */
export function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  saveSetting("theme", theme);
}

export const startTheme = () => setTheme(readSetting("theme", "system"));
