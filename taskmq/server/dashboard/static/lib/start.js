// @ts-check
/** Starts what takes longest first: who is signed in, and the page of the address. */
import { whoAmI } from "./api.js";
import { keyOf, openView, PAGES } from "./pages.js";

/** Why nobody is known to be signed in; null: somebody is.
 * @type {Promise<any>} */
export const asked = whoAmI().then(() => null, (error) => error);

const [name = "", ...rest] = location.hash.replace(/^#\/?|\?.*$/g, "").split("/").filter(Boolean);
// What fails here is told when the page is shown.
if (PAGES.some((one) => one.name === name)) openView(keyOf(name, rest.length > 0)).catch(() => undefined);
