// @ts-check
/** Alerts: firing ones, rules, silences, notices. */
import { call, may, part, send } from "../lib/api.js";
import { useData, useEvery } from "../lib/data.js";
import { span } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Action, Check, Confirm, Empty, Failure, Field, Head, notify, Section, Select, State, Loading, Table, TextField, When } from "../lib/parts.js";

const EVERY = 10_000;
const KINDS = /** @type {any} */ ({ __proto__: null, firing: "failed", pending: "retrying", resolved: "succeeded" });
const RULE = { metric: "failure_rate", threshold: 0.1, task: "", queue: "", workflow: "", each: "", window: 300, pending_for: 60, severity: "warning", channels: "", note: "", below: false, is_enabled: true };

function Silence({ of, close, reload }) {
  const [minutes, setMinutes] = useState("60");
  const act = async (/** @type {string} */ note) => { await send("alerts/silences", { seconds: Number(minutes) * 60, rule: of.rule, subject: of.subject ?? "", note }); notify("Silenced."); reload(); };
  return html`<${Confirm} title=${`Silence ${of.rule}`} verb="Silence" note close=${close} act=${act}><p>The alert stays visible, but sends no notices.</p>
    <${TextField} label="Duration in minutes" type="number" min="1" required value=${minutes} set=${setMinutes} /><//>`;
}

function Rule({ rule, close, reload }) {
  const metrics = useData("alerts/metrics", {}, []);
  const [name, setName] = useState(rule?.name ?? "");
  const [said, say] = useState(rule ? { ...rule, channels: rule.channels.join("\n") } : RULE);
  const set = (/** @type {string} */ field) => (/** @type {unknown} */ value) => say({ ...said, [field]: value });
  const act = async () => {
    const { name: _, tenant: __, version, ...body } = /** @type {any} */ (said);
    body.channels = String(said.channels).split(/\s+/).filter(Boolean);
    await call("PUT", `alerts/rules/${part(name)}`, { body, headers: version ? { "If-Match": `"${version}"` } : {} });
    notify("Rule saved.");
    reload();
  };
  const number = (/** @type {string} */ field, /** @type {string} */ label, hint = "") => html`<${TextField} label=${label} hint=${hint} type="number" step="any" min="0" required value=${said[field]} set=${(/** @type {string} */ text) => set(field)(Number(text))} />`;
  const pattern = (/** @type {string} */ field, /** @type {string} */ label, hint = "A pattern. Leave empty for all.") => html`<${TextField} label=${label} hint=${hint} value=${said[field]} set=${set(field)} />`;
  return html`<${Confirm} title=${rule ? `Rule ${rule.name}` : "Add a rule"} verb="Save" close=${close} act=${act}>
    ${metrics.error && html`<${Failure} error=${metrics.error} />`}
    <${TextField} label="Name" hint="Letters, digits, dots, dashes; no spaces." value=${name} required disabled=${rule !== null} set=${setName} />
    <${Field} label="Metric" hint=${metrics.data?.items[said.metric] ?? ""}><${Select} of=${[...new Set([said.metric, ...Object.keys(metrics.data?.items ?? {})])]} value=${said.metric} set=${set("metric")} /><//>
    <${Check} value=${said.below} set=${set("below")}>Fires below the threshold instead of above<//>
    ${number("threshold", "Threshold")}
    ${pattern("task", "Task")}${pattern("queue", "Queue")}${pattern("workflow", "Workflow", "A pattern, for metrics of runs. Leave empty for all.")}
    <${Field} label="Evaluate per"><${Select} of=${[["", "all together"], "task", "queue", "workflow"]} value=${said.each} set=${set("each")} /><//>
    ${number("window", "Window in seconds")}${number("pending_for", "Fires after seconds")}
    <${Field} label="Severity"><${Select} of=${["info", "warning", "critical"]} value=${said.severity} set=${set("severity")} /><//>
    <${Field} label="Channels" hint="One per line: mailto:ops@example.com, https://hooks.example.com/..."><textarea value=${said.channels} spellcheck=${false} onInput=${(/** @type {any} */ e) => set("channels")(e.target.value)} /><//>
    <${TextField} label="Note" value=${said.note} set=${set("note")} />
    <${Check} value=${said.is_enabled} set=${set("is_enabled")}>Enabled<//><//>`;
}

export default function Alerts() {
  const alerts = useData("alerts");
  const rules = useData("alerts/rules", {}, []);
  const silences = useData("alerts/silences", {}, []);
  const notices = useData("alerts/notices", { limit: 20 }, []);
  const [open, show] = useState(/** @type {{what: string, of: any} | null} */ (null));
  const close = () => show(null);
  const reload = () => { alerts.reload(); rules.reload(); silences.reload(); notices.reload(); };
  const mayChange = may("alerts.change");
  // No event is sent when rules are evaluated.
  useEvery(EVERY, () => { alerts.refresh(); notices.refresh(); });
  return html`<${Head} of=${alerts} title="Alerts" sub=${alerts.data ? `${alerts.data.firing} firing, ${alerts.data.pending} pending` : ""}>${mayChange && html`<button type="button" onClick=${() => show({ what: "rule", of: null })}>Add a rule</button>`}<//>
    <${Loading} loaded=${alerts}>${(/** @type {any} */ { items }) => items.length
      ? html`<${Table} label="Alerts" columns=${["State", "Rule", "Subject", "Severity", ["Value", "number"], "Since", "Last notice", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${`${one.rule} ${one.subject}`} data-row><td><${State} state=${one.state} kind=${KINDS[one.state]} />${one.is_silenced && html` <span class="badge">silenced</span>`}</td><td>${one.rule}</td><td>${one.subject || "all"}</td><td>${one.severity}</td>
          <td class="number">${Math.round(one.value * 1000) / 1000}</td><td><${When} at=${one.since} /></td><td><${When} at=${one.told_at} /></td><td>${mayChange && html`<div class="actions"><button type="button" onClick=${() => show({ what: "silence", of: one })}>Silence …</button></div>`}</td></tr>`)}<//>`
      : html`<${Empty} title="No alerts"><p>No rule is pending or firing.</p><//>`}<//>
    <${Section} title="Rules"><${Loading} loaded=${rules}>${(/** @type {any} */ { items }) => html`<${Table} none="No rules. To start, add one: failure_rate above 0.1, per task." label="Rules" columns=${["Rule", "Condition", "Subject", "Channels", "Note", ""]}>${items.map((/** @type {any} */ rule) => html`<tr key=${rule.name}><td>${rule.name}${rule.is_enabled ? "" : " (off)"}</td>
          <td>${rule.metric} ${rule.below ? "below" : "above"} ${rule.threshold}, over ${span(rule.window)}, for ${span(rule.pending_for)}</td><td>${["task", "queue", "workflow"].filter((each) => rule[each]).map((each) => `${each} ${rule[each]}`).join(", ") || "all"}</td><td>${rule.channels.join(", ") || "none"}</td><td class="wide"><span class="dim">${rule.note}</span></td>
          <td>${mayChange && html`<div class="actions"><button type="button" onClick=${() => show({ what: "rule", of: rule })}>Change</button>
            <${Action} act=${async () => { await send(`alerts/rules/${part(rule.name)}/test`); notify("Test notice queued."); }}>Test<//>
            <button type="button" class="danger" onClick=${() => show({ what: "remove", of: rule })}>Remove</button></div>`}</td></tr>`)}<//>`}<//><//>
    <${Section} title="Silences"><${Loading} loaded=${silences}>${(/** @type {any} */ { items }) => html`<${Table} none="No silences." label="Silences" columns=${["Rule", "Subject", "Ends", "By", "Note", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.id}><td>${one.rule || "every"}</td><td>${one.subject || "all"}</td><td><${When} at=${one.ends} /></td><td>${one.by}</td><td>${one.note}</td>
          <td>${mayChange && html`<${Action} act=${async () => { await call("DELETE", `alerts/silences/${part(one.id)}`); reload(); }}>End<//>`}</td></tr>`)}<//>`}<//><//>
    <${Section} title="Notices"><${Loading} loaded=${notices}>${(/** @type {any} */ { items }) => html`<${Table} none="No notices yet." label="Notices" columns=${["When", "Rule", "Channel", "Changes", "State"]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.id}><td><${When} at=${one.at} /></td><td>${one.rule}</td><td>${one.channel}</td><td>${one.changes.map((/** @type {any} */ each) => `${each.kind}: ${each.subject || "all"}`).join(", ")}</td><td>${one.state}, ${one.tries} tries</td></tr>`)}<//>`}<//><//>
    ${open?.what === "silence" && html`<${Silence} of=${open.of} close=${close} reload=${reload} />`}
    ${open?.what === "rule" && html`<${Rule} rule=${open.of} close=${close} reload=${reload} />`}
    ${open?.what === "remove" && html`<${Confirm} title=${`Remove ${open.of.name}`} verb="Remove" close=${close} act=${async () => { await call("DELETE", `alerts/rules/${part(open.of.name)}`); reload(); }}><p>The rule and its alerts are deleted, without a final notice.</p><//>`}`;
}
