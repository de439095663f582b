// Server-sent events of an answer to `fetch`: the browser's own EventSource sends no token.

/** Yields `{id, event, data}` as they arrive. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let event = {};
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      // A line break may be split: a lone carriage return at the end waits for what follows.
      const lines = text.split(/\r\n|\n|\r(?!$)/);
      text = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (event.data !== undefined) yield event;
          event = {};
          continue;
        }
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const part = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "data") event.data = event.data === undefined ? part : `${event.data}\n${part}`;
        else if (name === "id" || name === "event") event[name] = part;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
