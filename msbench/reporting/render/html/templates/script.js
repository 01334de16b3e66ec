(function () {
  "use strict";
  document.documentElement.classList.add("js");

  function each(selector, action) { Array.prototype.forEach.call(document.querySelectorAll(selector), action); }

  function reveal() {
    var target = document.getElementById(location.hash.slice(1));
    if (!target) { return; }
    for (var at = target; at; at = at.parentElement) { if (at.tagName === "DETAILS") { at.open = true; } }
    target.scrollIntoView();
  }

  function select(node) {
    var selection = getSelection();
    selection.removeAllRanges();
    var range = document.createRange();
    range.selectNodeContents(node);
    selection.addRange(range);
  }

  function copy(button) {
    var node = button.parentElement.querySelector("code");
    function say(text) {
      button.textContent = text;
      setTimeout(function () { button.textContent = "Copy"; }, 1500);
    }
    function byHand() { select(node); say(document.execCommand("copy") ? "Copied" : "Selected"); }
    if (navigator.clipboard) {
      navigator.clipboard.writeText(node.textContent).then(function () { say("Copied"); }, byHand);
    } else { byHand(); }
  }

  function all(open) { each("details.panel", function (node) { node.open = open; }); }

  each("button[hidden]", function (button) { button.hidden = false; });
  document.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button) { return; }
    if (button.className === "copy") { copy(button); } else { all(button.className === "open"); }
  });
  addEventListener("hashchange", reveal);
  reveal();
})();
