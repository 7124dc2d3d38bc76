// The stream of a page is lost: it says so until the console answers again, which tells it anew what is so.
document.addEventListener("htmx:sseError", () => {
  for (const state of document.querySelectorAll(".live .state")) {
    state.innerHTML = '<span class="dot bad" aria-hidden="true"></span> <strong>Not up to date</strong>: the console does not answer.';
  }
});
// A slash goes to the search over everything, where nobody writes into something else.
document.addEventListener("keydown", (event) => {
  const at = document.activeElement;
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || (at && at.matches("input, textarea, select"))) return;
  event.preventDefault();
  document.getElementById("everything").focus();
});
