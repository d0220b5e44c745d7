// @ts-check
/** Starts the slowest requests first: the current caller, and the module of the requested page. */
import { whoAmI } from "./api.js";
import { keyOf, openView, PAGES } from "./pages.js";

/** The error of the sign-in check; null if the user is signed in.
 * @type {Promise<any>} */
export const signInCheck = whoAmI().then(() => null, (error) => error);

const [name = "", ...rest] = location.hash.replace(/^#\/?|\?.*$/g, "").split("/").filter(Boolean);
// A failure is shown by the page.
if (PAGES.some((one) => one.name === name)) openView(keyOf(name, rest.length > 0)).catch(() => undefined);
