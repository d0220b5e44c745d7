export default class uPlot {
  constructor(options: any, data: (number | null)[][], into: HTMLElement);
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
}
