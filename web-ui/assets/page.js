// Starts the page. What it does lives in the wasm module; this only says what failed if it cannot.
import init, { start_page } from "./lockstep_web_ui.js";

try {
  await init({ module_or_path: new URL("lockstep_web_ui_bg.wasm", import.meta.url) });
  start_page();
} catch (error) {
  document.getElementById("page").textContent =
    `Lockstep could not start in this browser: ${error}. It needs WebAssembly and module scripts; ` +
    "a current Firefox, Chrome, Edge or Safari has both. A file:// address does not work: serve the folder.";
}
