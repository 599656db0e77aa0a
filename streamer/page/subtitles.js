// Finals as text, SubRip or WebVTT. A final: {text, start, end}, times in seconds.

const MAX_LINE = 42; // characters; subtitlers call two such lines for 7 s readable
const MAX_CUE_S = 7;

export function toText(finals) {
  return finals.map((final) => final.text + "\n").join("");
}

export function toSrt(finals) {
  return cues(finals)
    .map((cue, i) => `${i + 1}\n${time(cue.start, ",")} --> ${time(cue.end, ",")}\n${cue.text}\n`)
    .join("\n");
}

export function toVtt(finals) {
  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const body = cues(finals)
    .map((cue) => `\n${time(cue.start, ".")} --> ${time(cue.end, ".")}\n${escape(cue.text)}\n`)
    .join("");
  return "WEBVTT\n" + body;
}

/** Cut finals into cues of two lines, between words, at the words' times. */
export function cues(finals) {
  return finals.flatMap((final) => {
    const found = [];
    let open = [];
    for (const word of final.words?.length ? final.words : spread(final)) {
      const text = open.map((each) => each.text).join("") + word.text;
      if (open.length && (text.trim().length > 2 * MAX_LINE || word.end - open[0].start > MAX_CUE_S)) {
        found.push(open);
        open = [];
      }
      open.push(word);
    }
    if (open.length) found.push(open);
    return found.map((words) => ({
      start: words[0].start,
      end: Math.max(words.at(-1).end, words[0].start),
      text: wrap(words.map((word) => word.text).join("").trim()),
    }));
  });
}

function spread(final) {
  const pieces = final.text.split(/\s+/).filter(Boolean);
  const total = pieces.reduce((sum, piece) => sum + piece.length + 1, 0);
  let position = 0;
  return pieces.map((piece) => {
    const at = () => final.start + ((final.end - final.start) * position) / total;
    const start = at();
    position += piece.length + 1;
    return { text: " " + piece, start, end: at() };
  });
}

function wrap(text) {
  if (text.length <= MAX_LINE) return text;
  const middle = text.length / 2;
  let best = -1;
  for (let i = text.indexOf(" "); i >= 0; i = text.indexOf(" ", i + 1)) {
    if (best < 0 || Math.abs(i - middle) < Math.abs(best - middle)) best = i;
  }
  return best < 0 ? text : text.slice(0, best) + "\n" + text.slice(best + 1);
}

export function clock(seconds) {
  const whole = Math.floor(seconds);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  const rest = String(whole % 60).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

function time(seconds, point) {
  const total = Math.round(seconds * 1000);
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  return (
    `${pad(Math.floor(total / 3600000))}:${pad(Math.floor(total / 60000) % 60)}:` +
    `${pad(Math.floor(total / 1000) % 60)}${point}${pad(total % 1000, 3)}`
  );
}
