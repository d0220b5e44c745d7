// @ts-check
/** Preact, its hooks, and `html` for tagged templates. */
import { Fragment, h, render } from "../vendor/preact.mjs";
import { useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.mjs";
import htm from "../vendor/htm.mjs";

export const html = htm.bind(h);
export { Fragment, h, render, useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState };
