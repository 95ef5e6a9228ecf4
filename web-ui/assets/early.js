// Files that are dropped before the program is there are kept for it: the browser would leave
// the page to show them. Taken over, and ended, by src/handed.rs.
window.lockstep_early = [];
for (const kind of ["dragover", "drop"]) {
  addEventListener(kind, (event) => {
    if (!window.lockstep_early) return;
    event.preventDefault();
    if (kind === "drop" && event.dataTransfer) window.lockstep_early.push(...event.dataTransfer.files);
  });
}

// The page opens with its home as plain HTML; an address of another view waits for the program.
if (!/^#?\/?$/.test(location.hash) && !location.hash.startsWith("#token=")) {
  document.querySelector("#page .home")?.remove();
}
