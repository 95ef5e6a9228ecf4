// Writes one HTML file with the viewer and a recording inside. It opens from file:// without a
// server: all that is fetched otherwise lies in the file, packed by gzip and written in base64.
const beside = (name) => new URL(name, import.meta.url);
const blob = async (name) => (await fetch(beside(name))).blob();

const data_url = (blob) =>
  new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(blob);
  });

const packed = async (blob) => {
  const gzip = blob.stream().pipeThrough(new CompressionStream("gzip"));
  const url = await data_url(await new Response(gzip).blob());
  return url.slice(url.indexOf(",") + 1);
};

// What runs in the saved file: it unpacks, starts the engine from a blob, and the page with the
// recording's files as if they had just been dropped.
const start = async () => {
  const text = (id) => document.getElementById(id).textContent;
  const unpacked = (base64) => {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  };
  const script = (parts) => URL.createObjectURL(new Blob(parts, { type: "text/javascript" }));
  const { files, hash } = JSON.parse(text("saved-recording"));
  window.lockstep_early = [];
  for (const { path, gzip } of files) {
    const file = new File([await unpacked(gzip).arrayBuffer()], path.split("/").pop());
    file.droppedAt = path;
    window.lockstep_early.push(file);
  }
  if (!location.hash) history.replaceState(null, "", hash);
  // The engine runs as a classic script, since browsers start no module from a blob here: its glue
  // loses its exports, and is started by the name that it would have exported.
  const glue = await unpacked(text("saved-engine-js")).text();
  const init = glue.match(/(\w+) as default/)[1];
  const classic = glue
    .replaceAll("import.meta.url", "location.href")
    .replace(/^export \{.*$/gm, "")
    .replace(/^export /gm, "");
  const started = `
    (async () => {
      const packed = Uint8Array.from(atob(${JSON.stringify(text("saved-engine-wasm"))}), (char) => char.charCodeAt(0));
      const module = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
      await ${init}({ module_or_path: await module.arrayBuffer() });
      start_engine();
      postMessage("ready");
    })().catch((error) => postMessage(\`failed: \${error}\`));`;
  const app = await import(script([await unpacked(text("saved-app-js")).text()]));
  await app.default({ module_or_path: await unpacked(text("saved-app-wasm")).arrayBuffer() });
  app.start_page(script([classic, started]), "");
};

// The page as one file. `files` are pairs of a path and a file; `hash` is the address that it opens.
export async function saved_page(files, hash) {
  const parts = {
    "saved-app-js": blob("lockstep_web_ui.js"),
    "saved-app-wasm": blob("lockstep_web_ui_bg.wasm"),
    "saved-engine-js": blob("lockstep_web_engine.js"),
    "saved-engine-wasm": blob("lockstep_web_engine_bg.wasm"),
  };
  const scripts = [];
  for (const [id, part] of Object.entries(parts)) {
    scripts.push(`<script type="text/plain" id="${id}">${await packed(await part)}</script>\n`);
  }
  const recording = { hash, files: [] };
  for (const [path, file] of files) recording.files.push({ path, gzip: await packed(file) });
  // No `</script>` in a path ends the element.
  const json = JSON.stringify(recording).replaceAll("<", "\\u003c");
  const style = await (await blob("style.css")).text();
  const icon = document.querySelector("link[rel=icon]").href;
  return new Blob([
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n<title>Lockstep</title>\n',
    '<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover" />\n',
    '<meta name="color-scheme" content="light dark" />\n',
    `<link rel="icon" href="${icon}" />\n<style>\n${style}</style>\n</head>\n`,
    '<body>\n<div id="page"><p class="boot">Opening the recording…</p></div>\n',
    ...scripts,
    `<script type="application/json" id="saved-recording">${json}</script>\n`,
    "<script type=\"module\">\ntry {\n  await (", start.toString(), ")();\n} catch (error) {\n",
    '  document.getElementById("page").textContent = `Lockstep could not start in this browser: ${error}. ',
    "It needs WebAssembly and module workers; a current Firefox, Chrome, Edge or Safari has both.`;\n}\n",
    "</script>\n</body>\n</html>\n",
  ], { type: "text/html" });
}
