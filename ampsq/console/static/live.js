// The stream of a page is lost: it says so until the console answers again, which tells it anew what is so.
document.addEventListener("htmx:sseError", () => {
  for (const state of document.querySelectorAll(".live .state")) {
    state.innerHTML = '<span class="dot bad" aria-hidden="true"></span> <strong>Not up to date</strong>: the console does not answer.';
  }
});
