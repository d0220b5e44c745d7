// @ts-check
/** Requests to the API, except the event stream. */

/**
 * @typedef {{status: number, code: string, title?: string, detail: string, request_id?: string, column?: number,
 *   errors?: {field: string, message: string, suggestion?: string}[]}} ProblemDetails
 * @typedef {{tenant: string, role: string, tasks: string[]}} Role
 * @typedef {{user_id: string, user: string, via: string, memberships: Role[], permissions: string[],
 *   csrf_token: string | null}} CallerView
 * @typedef {{app: string, version: string, environment: string, is_read_only: boolean,
 *   is_development: boolean}} ServerView
 */

/** The API's URL, relative to the dashboard, below any prefix. */
export const API = new URL("../api/v1/", location.href.split("#")[0]).href;

/** @type {{caller: CallerView | null, server: ServerView | null, tenant: string}} */
export const session = { caller: null, server: null, tenant: "" };

/** An error response. */
export class ApiError extends Error {
  /** @param {ProblemDetails} problem */
  constructor(problem) {
    super(problem.detail || problem.title || "unknown error");
    this.problem = problem;
  }

  get status() {
    return this.problem.status;
  }
}

/** @type {() => void} */
let signedOut = () => undefined;

/** Call `listener` when the session ends.
 * @param {() => void} listener */
export function onSignedOut(listener) {
  signedOut = listener;
}

/**
 * Return the URL of an API call, with the selected tenant.
 * @param {string} path below the API; names in it must be encoded.
 * @param {Record<string, unknown>} [query] empty values are omitted; lists are repeated parameters.
 */
export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), API);
  for (const [name, value] of Object.entries({ tenant: session.tenant, ...query })) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") url.searchParams.append(name, String(one));
  }
  // An empty cursor requests the first page as an object.
  if (query.cursor === "") url.searchParams.set("cursor", "");
  return url.href;
}

/** Seconds by which responses from a replica of the store may be out of date, by path, since the page was opened.
 * @type {Map<string, number>} */
export const ages = new Map();

/** When this user last changed something: later lists must include it. */
let changedAt = 0;

/** @typedef {{method: string, url: string, body?: unknown, headers: Record<string, string>}} Sent */

/** @type {{sent: Sent | null} | null} */
let recording = null;

/** Run an action until it would send its first change, and return that request, which is not sent; null if it sends none.
 * @param {() => unknown} act @returns {Promise<Sent | null>} */
export async function record(act) {
  const own = { sent: /** @type {Sent | null} */ (null) };
  recording = own;
  try {
    await act();
  } catch (error) {
    if (!own.sent) throw error;
  } finally {
    recording = null;
  }
  return own.sent;
}

/** Send a request and return the response body.
 * @param {string} method
 * @param {string} path
 * @param {{query?: Record<string, unknown>, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal,
 *   isSignIn?: boolean}} [more]
 * @returns {Promise<any>}
 */
export async function call(method, path, { query, body, headers = {}, signal, isSignIn = false } = {}) {
  if (recording && method !== "GET") {
    recording.sent ??= { method, url: address(path, query), body, headers };
    throw new ApiError({ status: 0, code: "recorded", detail: "The request was not sent." });
  }
  /** @type {Record<string, string>} */
  const sent = { Accept: "application/json", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (method !== "GET" && session.caller?.csrf_token) sent["X-CSRF-Token"] = session.caller.csrf_token;
  if (method === "GET" && changedAt > 0) sent["Cache-Control"] = `max-age=${Math.floor((performance.now() - changedAt) / 1000)}`;
  let answer;
  try {
    answer = await fetch(address(path, query), {
      method, signal, headers: sent, credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError({ status: 0, code: "unreachable", detail: "The server is unreachable." });
  } finally {
    if (method !== "GET") changedAt = performance.now();
  }
  if (method === "GET") ages.set(path, Number(answer.headers.get("Age") ?? 0));
  const content = await answer.json().catch(() => null);
  if (answer.ok) return content;
  if (answer.status === 401 && !isSignIn) signedOut();
  const problem = content && typeof content === "object" ? content : {};
  throw new ApiError({
    ...problem,
    status: answer.status,
    code: problem.code || "error",
    detail: problem.detail || `The server answered ${answer.status}.`,
  });
}

/** @param {string} path @param {Record<string, unknown>} [query] @param {AbortSignal} [signal] */
export const read = (path, query, signal) => call("GET", path, { query, signal });

/** @param {string} path @param {unknown} [body] */
export const send = (path, body = {}) => call("POST", path, { body });

/** Encode a name as a path segment.
 * @param {string} name */
export const part = (name) => encodeURIComponent(name);

/** Return the selected tenant, or the only one of the caller; "" if there is none. */
export const ownTenant = () => session.tenant || (session.caller?.memberships.length === 1 ? session.caller.memberships[0].tenant.replace("*", "") : "");

/** Whether the caller has a permission on any tenant, and the server is not read-only for it.
 * @param {string} permission */
export function may(permission) {
  const changes = !permission.endsWith(".read");
  if (changes && session.server?.is_read_only) return false;
  return session.caller?.permissions.includes(permission) ?? false;
}

/** Load the caller and the server; throws if nobody is signed in. */
export async function whoAmI() {
  [session.caller, session.server] = await Promise.all(["auth/me", "server"].map((path) => call("GET", path, { isSignIn: true })));
}

/** @param {string} username @param {string} password */
export async function signIn(username, password) {
  await call("POST", "auth/login", { body: { username, password }, isSignIn: true });
  await whoAmI();
}

export async function signOut() {
  await call("POST", "auth/logout");
  session.caller = null;
  signedOut();
}
