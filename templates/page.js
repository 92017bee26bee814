"use strict";
// Without this script there are no buttons, and all else is as it is.
(function () {
  // A name that begins like a formula is one in a spreadsheet; an apostrophe makes it a text.
  function cellText(cell) {
    const text = cell.textContent.trim().replace(/\s+/g, " ");
    return /^[=@+\-]/.test(text) && isNaN(Number(text)) ? "'" + text : text;
  }
  function values(table) {
    return Array.from(table.rows, function (row) {
      return Array.from(row.cells, cellText).join("\t") + "\n";
    }).join("");
  }
  // navigator.clipboard is for pages that came over https or from a file.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (error) {
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      return done;
    }
  }
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async function () {
      const done = await copy(values(button.closest(".titled").querySelector("table")));
      button.textContent = done ? "copied" : "not allowed";
      setTimeout(function () { button.textContent = "copy"; }, 1500);
    });
  }
})();
