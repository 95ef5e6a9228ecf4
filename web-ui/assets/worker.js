// The worker: the page's own module, started the other way. The page waits for "ready" before it
// sends anything, so no message is lost while the module loads.
try {
  const { default: init, start_worker } = await import("./lockstep_web_ui.js");
  await init({ module_or_path: new URL("lockstep_web_ui_bg.wasm", import.meta.url) });
  start_worker();
  postMessage("ready");
} catch (error) {
  postMessage(`failed: ${error}`);
}
