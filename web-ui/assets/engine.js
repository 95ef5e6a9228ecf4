// The worker that computes: a module of its own, fetched beside the page. The page waits for "ready"
// before it sends anything, so no message is lost while the module loads.
try {
  const { default: init, start_engine } = await import("./lockstep_web_engine.js");
  await init({ module_or_path: new URL("lockstep_web_engine_bg.wasm", import.meta.url) });
  start_engine();
  postMessage("ready");
} catch (error) {
  postMessage(`failed: ${error}`);
}
