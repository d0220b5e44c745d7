export const Fragment: any;
export function h(type: any, props: any, ...children: any[]): any;
export function render(what: any, into: Element): void;
