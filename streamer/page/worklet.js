// Turns the microphone's samples into s16le packets of 40 ms at the device's own rate. The service
// resamples: one filter for the whole stream, not one for each packet.

const PACKET_S = 0.04;

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.size = Math.round(sampleRate * PACKET_S);
    this.packet = new Int16Array(this.size);
    this.length = 0;
  }

  process([channels]) {
    // no channels: the track has ended, which the main thread notices by itself
    if (channels.length === 0) return true;
    for (let i = 0; i < channels[0].length; i++) {
      let sum = 0;
      for (const channel of channels) sum += channel[i];
      const sample = Math.max(-1, Math.min(1, sum / channels.length));
      this.packet[this.length++] = Math.round(sample * 32767);
      if (this.length === this.size) {
        this.port.postMessage(this.packet.buffer, [this.packet.buffer]);
        this.packet = new Int16Array(this.size);
        this.length = 0;
      }
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
