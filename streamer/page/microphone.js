// The microphone: packets of s16le audio, a level, and clear messages when it cannot be used.

const MAX_RATE = 48000; // Hz, the most that the service accepts

export class MicrophoneError extends Error {}

export class Microphone {
  /** onPacket(ArrayBuffer) for each 40 ms; onLost() when the device goes away. */
  constructor(onPacket, onLost) {
    this.onPacket = onPacket;
    this.onLost = onLost;
  }

  /** Ask for the microphone and record. Throws MicrophoneError with a message to show. */
  async open() {
    if (!window.isSecureContext || !navigator.mediaDevices) {
      throw new MicrophoneError(
        "Browsers allow the microphone only on secure pages. Open this page with https://, or on " +
          "the machine itself as http://localhost.",
      );
    }
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({
        // noise suppression is made for ears and removes what recognition needs
        audio: { channelCount: 1, echoCancellation: true, noiseSuppression: false, autoGainControl: true },
      });
    } catch (error) {
      throw new MicrophoneError(explain(error));
    }
    try {
      this.context = new AudioContext();
      if (this.context.sampleRate > MAX_RATE) {
        await this.context.close();
        this.context = new AudioContext({ sampleRate: MAX_RATE });
      }
      await this.context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
      await this.context.resume();
      const source = this.context.createMediaStreamSource(this.stream);
      this.analyser = this.context.createAnalyser();
      this.analyser.fftSize = 1024;
      const recorder = new AudioWorkletNode(this.context, "recorder", { numberOfOutputs: 0 });
      recorder.port.onmessage = (event) => this.onPacket(event.data);
      source.connect(this.analyser);
      source.connect(recorder);
    } catch (error) {
      this.close();
      throw new MicrophoneError(`The microphone could not be started (${error.name}).`);
    }
    this.sampleRate = this.context.sampleRate;
    for (const track of this.stream.getTracks()) track.addEventListener("ended", () => this.onLost());
  }

  /** Copy the newest samples, -1 to 1, into the array. */
  read(samples) {
    if (this.analyser) this.analyser.getFloatTimeDomainData(samples);
    else samples.fill(0);
  }

  close() {
    this.onPacket = () => {}; // packets still under way come after the last one that counts
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.context?.close();
    this.analyser = this.context = this.stream = undefined;
  }
}

function explain(error) {
  switch (error.name) {
    case "NotAllowedError":
    case "SecurityError":
      return (
        "This page may not use the microphone. Allow it (the icon beside the address), then press " +
        "Start again."
      );
    case "NotFoundError":
    case "OverconstrainedError":
      return "No microphone was found. Connect one, then press Start again.";
    case "NotReadableError":
    case "AbortError":
      return "The microphone cannot be opened; another program may be using it.";
    default:
      return `The microphone could not be opened (${error.name}).`;
  }
}
