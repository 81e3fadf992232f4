const tick = 10; // milliseconds

/**
 * A clock that stands still while this process gets nothing done, as it does while something blocks the event
 * loop: a reply that has come, and waits to be read, is no silence of a node.
 */
export class LiveClock {
  #elapsed = 0;
  #last = performance.now();
  #targets: { at: number; resolve: () => void }[] = [];
  readonly #timer = setInterval(() => this.#beat(), tick);

  /** Milliseconds that have passed. */
  get elapsed(): number {
    return this.#elapsed;
  }

  /** Resolves when so many milliseconds have passed since the beginning. */
  reach(at: number): Promise<void> {
    return new Promise((resolve) => this.#targets.push({ at, resolve }));
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #beat(): void {
    const now = performance.now();
    this.#elapsed += Math.min(now - this.#last, 2 * tick);
    this.#last = now;
    const over = this.#targets.filter(({ at }) => at <= this.#elapsed);
    this.#targets = this.#targets.filter(({ at }) => at > this.#elapsed);
    if (over.length > 0) {
      // What has come meanwhile is read first.
      setImmediate(() => setImmediate(() => over.forEach(({ resolve }) => resolve())));
    }
  }
}
