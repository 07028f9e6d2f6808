// Sort the table of results by its headers, and filter it by words and choices.
(() => {
  const table = document.getElementById("results-table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const order = new Intl.Collator(undefined, {numeric: true, sensitivity: "base"});

  function sort(column) {
    const head = heads[column];
    const numeric = head.dataset.kind === "number";
    // The first click sorts numbers in descending order, and words in ascending order.
    const first = numeric ? "descending" : "ascending";
    const second = numeric ? "ascending" : "descending";
    const wanted = head.getAttribute("aria-sort") === first ? second : first;
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", wanted);
    const sign = wanted === "ascending" ? 1 : -1;
    const value = (row) => row.cells[column].dataset.value ?? "";
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // missing values come last in either order
      return sign * (numeric ? Number(x) - Number(y) : order.compare(x, y));
    });
    body.append(...rows);
  }
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sort(column)));

  const words = document.getElementById("filter-words");
  const choices = [...document.querySelectorAll("[data-filter]")];
  const sure = document.getElementById("filter-sure");
  const count = document.getElementById("filter-count");
  const column = (name) => heads.findIndex((head) => head.dataset.name === name);
  const text = (row, name) => row.cells[column(name)].dataset.value;

  function filter() {
    const wanted = words.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = text(row, words.dataset.words).toLowerCase().includes(wanted)
        && choices.every((choice) => !choice.value || text(row, choice.dataset.filter) === choice.value)
        && (!sure.checked || Number(text(row, "p")) < 0.05);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  }
  for (const control of [words, sure, ...choices]) control.addEventListener("input", filter);
  filter();
})();
