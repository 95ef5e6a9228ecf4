// The worker that executes programs. It is fetched when the first one is opened; the page ends it
// when a program takes too long, and starts another.
import init, { answer } from "./lockstep_web_program.js";

const ready = init({ module_or_path: new URL("lockstep_web_program_bg.wasm", import.meta.url) });

onmessage = async ({ data: [id, question] }) => {
  try {
    await ready;
    const bytes = answer(question);
    postMessage([id, bytes], [bytes.buffer]);
  } catch (error) {
    // A stack that is full or memory that is gone ends the module: the page starts another.
    postMessage([id, `${error}`]);
  }
};
