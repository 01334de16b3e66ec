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

  function amount(row, column) {
    var text = row.cells[column].textContent.trim(), number = parseFloat(text.replace("\u2212", "-"));
    if (column === 0) { return text; }
    return isNaN(number) ? null : number;
  }

  function sortable(table) {
    var rows = [], heads = table.querySelectorAll("th.corner, thead tr:last-child th:not(.corner)");
    Array.prototype.forEach.call(table.tBodies, function (body) {
      Array.prototype.forEach.call(body.rows, function (row) { rows.push([body, row]); });
    });
    Array.prototype.forEach.call(heads, function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.title = "Sort";
      while (head.firstChild) { button.appendChild(head.firstChild); }
      head.appendChild(button);
      button.addEventListener("click", function () { sort(rows, heads, head, column); });
    });
  }

  // The first click puts the highest on top, the second the lowest, the third restores groups and order.
  function sort(rows, heads, head, column) {
    var turns = ["none", "descending", "ascending"];
    var now = turns[(turns.indexOf(head.getAttribute("aria-sort") || "none") + 1) % 3];
    Array.prototype.forEach.call(heads, function (each) { each.removeAttribute("aria-sort"); });
    if (now !== "none") { head.setAttribute("aria-sort", now); }
    var sorted = rows.slice(), sign = (now === "ascending") === (column > 0) ? 1 : -1, last = rows[rows.length - 1][0];
    if (now !== "none") {
      sorted = sorted.filter(function (pair) { return pair[1].className !== "group"; }).sort(function (one, other) {
        var a = amount(one[1], column), b = amount(other[1], column);
        if (a === null || b === null) { return (a === null) - (b === null); }
        return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
      });
    }
    rows.forEach(function (pair) { if (pair[1].className === "group") { pair[1].hidden = now !== "none"; } });
    sorted.forEach(function (pair) { (now === "none" ? pair[0] : last).appendChild(pair[1]); });
  }

  each("main table", sortable);
  each("button[hidden]", function (button) { button.hidden = false; });
  document.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button || button.className === "sort") { return; }
    if (button.className === "copy") { copy(button); } else { all(button.className === "open"); }
  });
  addEventListener("hashchange", reveal);
  reveal();
})();
