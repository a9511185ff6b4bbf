// The button that sends a trace to Perfetto: open its page, send PING until it answers PONG, then post the trace.
// Protocol: https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
// and https://perfetto.dev/docs/visualization/embedding-api-reference
(function (identity) {
  "use strict";
  const PING_EVERY_MS = 100;
  const GIVE_UP_AFTER = 6; // times patienceSeconds, because a slow network may still deliver the page

  function connect(box) {
    const config = JSON.parse(box.dataset.config);
    const viewer = new URL(config.page).origin;
    const openButton = box.querySelector("[data-action=open]");
    const saveButton = box.querySelector("[data-action=save]");
    const status = box.querySelector("[role=status]");
    let tab = null;
    let pinging = null;

    function say(outcome, text) {
      box.dataset.outcome = outcome;
      status.textContent = text;
    }

    function traceBytes() {
      const text = atob(box.dataset.trace);
      const bytes = new Uint8Array(text.length);
      for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
      return bytes;
    }

    function stop(outcome, text) {
      clearInterval(pinging);
      window.removeEventListener("message", receive);
      openButton.disabled = false;
      say(outcome, text);
    }

    function receive(event) {
      // Any page may send a message, but only the viewer in the tab that was opened here gets the trace.
      if (event.source !== tab || event.origin !== viewer || event.data !== "PONG") return;
      const buffer = traceBytes().buffer;
      const trace = {
        buffer: buffer,
        title: config.title,
        fileName: config.fileName,
        keepApiOpen: false,
        localOnly: true,
      };
      tab.postMessage({ perfetto: trace }, viewer, [buffer]);
      stop("sent", `Perfetto has the trace in its tab. If it asks whether to trust ${window.origin}, answer yes.`);
    }

    function ping(since) {
      const waited = (performance.now() - since) / 1000 / config.patienceSeconds;
      if (tab.closed) {
        const isolated = "this server isolates its pages (Cross-Origin-Opener-Policy)";
        stop("closed", `The new tab can't be reached, because it was closed, or ${isolated}. ${config.elsewhere}`);
      } else if (waited > GIVE_UP_AFTER) {
        stop("silent", `${config.page} didn't answer. ${config.elsewhere}`);
      } else {
        if (waited > 1) say("silent", `${config.page} hasn't answered yet. Can this machine reach it? ${config.elsewhere}`);
        tab.postMessage("PING", viewer);
      }
    }

    function openViewer() {
      // Open it in the click handler, because otherwise the browser blocks the new tab as a pop-up.
      tab = window.open(config.page, "_blank");
      if (!tab) {
        // VS Code's frames lack allow-popups: src/vs/workbench/contrib/webview/browser/pre/index.html.
        say("blocked", `The browser blocked the new tab. Allow pop-ups for this page and press again. VS Code never allows them. ${config.elsewhere}`);
        return;
      }
      openButton.disabled = true;
      say("waiting", `Waiting for ${config.page} …`);
      window.addEventListener("message", receive);
      const since = performance.now();
      pinging = setInterval(() => ping(since), PING_EVERY_MS);
    }

    function saveFile() {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([traceBytes()], { type: "application/octet-stream" }));
      link.download = config.fileName;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    }

    openButton.addEventListener("click", openViewer);
    saveButton.addEventListener("click", saveFile);
    openButton.disabled = saveButton.disabled = false;
    say("ready", "");
  }

  for (const box of document.querySelectorAll(`[id="${identity}"]:not([data-outcome])`)) connect(box);
})
