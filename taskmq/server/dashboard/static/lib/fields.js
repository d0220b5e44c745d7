// @ts-check
/** Form fields generated from JSON schemas. */
import { ApiError, read } from "./api.js";
import { html, useState } from "./html.js";
import { CopyCurl } from "./curl.js";
import { Failure, Field } from "./parts.js";

/** Resolve a schema reference within the same document.
 * @param {any} schema @param {any} whole @returns {any} */
function resolve(schema, whole) {
  let found = schema ?? {};
  for (let turn = 0; found.$ref && turn < 10; turn += 1) {
    found = String(found.$ref).replace(/^#\//, "").split("/").reduce((at, name) => at?.[name.replace(/~1/g, "/").replace(/~0/g, "~")], whole) ?? {};
  }
  return found;
}

/** @param {any} schema @param {any} whole */
function kindOf(schema, whole) {
  const found = resolve(schema, whole);
  const parts = (found.oneOf ?? found.anyOf ?? [found]).map((/** @type {any} */ one) => resolve(one, whole)).filter((/** @type {any} */ one) => one.type !== "null");
  if (parts.length > 1) return { kind: parts.every((/** @type {any} */ one) => ["string", "integer", "number"].includes(one.type)) ? "scalar" : "json" };
  const [only = found] = parts;
  const type = [only.type].flat().find((/** @type {unknown} */ one) => one !== "null");
  if (Array.isArray(only.enum)) return { kind: "enum", values: only.enum.filter((/** @type {unknown} */ one) => one !== null) };
  if (type === "string") return { kind: "text" };
  if (type === "integer" || type === "number") return { kind: "number" };
  if (type === "boolean") return { kind: "boolean" };
  return { kind: "json" };
}

/** A single argument. Empty fields are not sent.
 * @param {{name: string, schema: any, whole: any, isNeeded: boolean, value: string | undefined, set: (value: string | undefined) => void}} props */
export function Argument({ name, schema, whole, isNeeded, value, set }) {
  const { kind, values } = /** @type {any} */ (kindOf(schema, whole));
  const found = resolve(schema, whole);
  const hint = [found.description, isNeeded ? "" : `optional${schema.default === undefined ? "" : `, default ${JSON.stringify(schema.default)}`}`].filter(Boolean).join(" · ");
  const input = (/** @type {any} */ e) => set(e.target.value);
  const label = `${name}${isNeeded ? " (required)" : ""}`;
  if (kind === "enum" || kind === "boolean") {
    const choices = kind === "boolean" ? [true, false] : values;
    return html`<${Field} label=${label} hint=${hint}><select value=${value ?? ""} required=${isNeeded} onChange=${input}><option value=""></option>${choices.map((/** @type {unknown} */ one) => html`<option key=${String(one)} value=${JSON.stringify(one)}>${String(one)}</option>`)}</select><//>`;
  }
  if (kind === "json") return html`<${Field} label=${label} hint=${`${hint}${hint ? " · " : ""}as JSON`}><textarea rows="3" value=${value ?? ""} required=${isNeeded} spellcheck=${false} onInput=${input} /><//>`;
  return html`<${Field} label=${label} hint=${hint}><input type=${kind === "number" ? "number" : "text"} step="any" value=${value ?? ""} required=${isNeeded && kind === "number"} onInput=${input} /><//>`;
}

/** @param {any} schema @param {Record<string, string | undefined>} values @param {any} [whole] the document of the schema */
export function payloadOf(schema, values, whole = schema) {
  /** @type {Record<string, unknown>} */
  const payload = {};
  for (const [name, part] of Object.entries(schema.properties ?? {})) {
    const text = values[name];
    const needed = (schema.required ?? []).includes(name);
    const { kind } = kindOf(part, whole);
    if (kind === "text" && (text || needed)) payload[name] = text ?? "";
    else if (kind === "number" && text) payload[name] = Number(text);
    else if (kind === "scalar" && text) payload[name] = Number.isNaN(Number(text)) ? text : Number(text);
    else if (text) {
      try { payload[name] = JSON.parse(text); } catch { throw new ApiError({ status: 0, code: "json", detail: `${name} is not valid JSON.` }); }
    }
  }
  return payload;
}

/** Further fields of a request, as the API describes it. Empty fields are not sent.
 * @param {string} body the request's schema @param {string[]} omitted its fields that the form has already
 * @returns {{form: unknown, payload: () => Record<string, unknown>}} */
export function useMoreFields(body, omitted) {
  const [whole, setWhole] = useState(/** @type {any} */ (null));
  const [values, set] = useState(/** @type {Record<string, string | undefined>} */ ({}));
  const schema = whole?.components.schemas[body];
  const load = (/** @type {any} */ e) => { if (e.target.open && !whole) read("../openapi.json").then(setWhole, () => undefined); };
  const names = Object.keys(schema?.properties ?? {}).filter((name) => !omitted.includes(name));
  const form = html`<details onToggle=${load}><summary>More options</summary>
    ${names.map((name) => html`<${Argument} key=${name} name=${name} schema=${schema.properties[name]} whole=${whole} isNeeded=${false} value=${values[name]} set=${(/** @type {any} */ value) => set({ ...values, [name]: value })} />`)}</details>`;
  return { form, payload: () => (schema ? payloadOf({ properties: schema.properties }, values, whole) : {}) };
}

/** A form for a value, generated from its schema; one that is not an object has a single field.
 * @param {{schema: any, act: (value: any) => Promise<void>, verb: string, none?: string, initial?: Record<string, unknown>, children?: unknown}} props none: the text if there are no fields; initial: values of the fields of an object */
export function ValueForm({ schema, act, verb, none = "", initial = {}, children = null }) {
  const [values, set] = useState(/** @returns {Record<string, string | undefined>} */ () => Object.fromEntries(Object.entries(initial).filter(([, value]) => value !== null).map(([name, value]) => [name, typeof value === "string" && ["text", "scalar"].includes(kindOf(schema?.properties?.[name], schema).kind) ? value : JSON.stringify(value)])));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  const isObject = typeof schema?.properties === "object";
  const fields = isObject ? schema : { properties: { value: schema ?? {} }, required: schema ? ["value"] : [] };
  const run = async () => {
    const payload = payloadOf(fields, values, schema ?? {});
    await act(isObject ? payload : payload.value ?? null);
  };
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await run();
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
    setBusy(false);
  };
  const properties = Object.entries(fields.properties);
  return html`<form onSubmit=${submit}>
    ${properties.map(([name, field]) => html`<${Argument} key=${name} name=${name} schema=${field} whole=${schema ?? {}} isNeeded=${(fields.required ?? []).includes(name)} value=${values[name]} set=${(/** @type {any} */ value) => set({ ...values, [name]: value })} />`)}
    ${!properties.length && none && html`<p class="dim">${none}</p>`}
    ${children}
    ${error && html`<${Failure} error=${error} />`}
    <button type="submit" class="primary" disabled=${busy}>${verb}</button> <${CopyCurl} act=${run} />
  </form>`;
}
