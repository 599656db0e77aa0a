// The level meter: a wire that swings with the voice.

const METER_MS = 250; // between updates for assistive technology

export class Wire {
  constructor(canvas, meter) {
    this.canvas = canvas;
    this.meter = meter;
    this.samples = new Float32Array(1024);
    this.level = 0; // 0 to 1, falls slowly
    this.updated = 0;
    this.isStill = matchMedia("(prefers-reduced-motion: reduce)");
    this.draw = this.draw.bind(this);
    new ResizeObserver(() => this.#paint()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  listen(microphone) {
    this.microphone = microphone;
    requestAnimationFrame(this.draw);
  }

  rest() {
    this.microphone = undefined;
    this.samples.fill(0);
    this.level = 0;
    this.#announce();
    this.#paint();
  }

  draw(now) {
    if (!this.microphone) return;
    this.microphone.read(this.samples);
    let power = 0;
    for (const sample of this.samples) power += sample * sample;
    // -60 dB is empty, -10 dB is full: speech lies between them
    const level = 1 + (10 * Math.log10(power / this.samples.length + 1e-12) + 10) / 50;
    this.level = Math.max(Math.min(1, Math.max(0, level)), this.level * 0.92);
    if (now - this.updated > METER_MS) {
      this.updated = now;
      this.#announce();
    }
    this.#paint();
    requestAnimationFrame(this.draw);
  }

  #announce() {
    this.meter.setAttribute("aria-valuenow", String(Math.round(this.level * 100)));
  }

  #paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale)) this.canvas.width = Math.round(width * scale);
    if (this.canvas.height !== Math.round(height * scale)) this.canvas.height = Math.round(height * scale);
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const middle = height / 2;
    pen.lineCap = "round";
    if (this.isStill.matches) {
      this.#line(pen, style.getPropertyValue("--rule"), 2, [0, width], () => middle);
      const half = (this.level * width) / 2;
      this.#line(pen, style.getPropertyValue("--accent"), 4, [width / 2 - half, width / 2 + half], () => middle);
      return;
    }
    const loud = this.level > 0.02;
    const colour = style.getPropertyValue(loud ? "--accent" : "--rule");
    const count = this.samples.length;
    // quiet voices move the wire too: its shape follows the waveform, its height the level
    let peak = 1e-4;
    for (const sample of this.samples) peak = Math.max(peak, Math.abs(sample));
    const reach = (this.level * height * 0.46) / peak;
    this.#line(pen, colour, loud ? 2.5 : 2, [0, width], (x) => {
      const place = x / width;
      // fixed at both ends
      const envelope = Math.sin(Math.PI * place) ** 2;
      const at = place * (count - 8);
      const i = Math.floor(at);
      let sum = 0;
      for (let k = 0; k < 8; k++) sum += this.samples[i + k];
      return middle - (sum / 8) * reach * envelope;
    });
  }

  #line(pen, colour, thickness, [from, to], height) {
    pen.beginPath();
    pen.strokeStyle = colour;
    pen.lineWidth = thickness;
    pen.lineJoin = "round";
    for (let x = from; x <= to; x += 3) pen.lineTo(x, height(x));
    pen.stroke();
  }
}
