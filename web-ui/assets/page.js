// Starts the page. What it does lives in the wasm module; this only says what failed if it cannot,
// and where the scripts of its workers are.
import init, { start_page } from "./lockstep_web_ui.js";

const beside = (name) => new URL(name, import.meta.url).href;

// Absent in a page that was saved so.
window.lockstep_saved_page = async (files, hash) => (await import("./save.js")).saved_page(files, hash);

try {
  await init({ module_or_path: beside("lockstep_web_ui_bg.wasm") });
  start_page(beside("engine.js"), beside("program.js"));
} catch (error) {
  document.getElementById("page").textContent =
    `Lockstep could not start in this browser: ${error}. It needs WebAssembly and module scripts; ` +
    "a current Firefox, Chrome, Edge or Safari has both. A file:// address does not work: serve the folder.";
}
