// tables.js - tables that fit their width: columns that matter least give way, and where the others are still too wide each row becomes a card. All are there on demand.

// Of each section's table: the columns that stay, then the others from the one that goes last on; what is not named goes first.
const columnOrder = {
    results: [["format", "saturated", "flushed", "skipped", "last loss", "loss − fp32", "test acc. %", "bits/byte", "bits/character"],
              ["agree %", "× fp32", "ms/step", "test loss", "train loss", "weights", "activations"]],
    differences: [["format", "minus fp32", "mean", "p"], ["95 % interval of the mean", "pairs"]],
    arithmetic: [["format", "saturated", "flushed to zero", "NaN or Inf"], ["flushed share", "saturated share", "e at maximum", "e at minimum", "elements written"]],
    "what-if": [["role"], []],
    runs: [["format", "seed", "last loss", "test acc. %", "divergence"], ["test loss", "agree %", "train loss"]],
};

function fitTable(box, [staying, others]) {
    const table = box.querySelector("table"), heads = [...table.tHead.rows[0].cells].map(cell => cell.textContent), rows = [...table.rows];
    const leaving = heads.map((name, i) => ({name, i})).filter(({name}) => !staying.includes(name))
        .sort((a, b) => (others.indexOf(b.name) + 1 || 99) - (others.indexOf(a.name) + 1 || 99) || b.i - a.i);
    const note = element("p", {class: "soft fit"});
    let all = false;
    box.after(note);
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => { cell.dataset.head = heads[i]; });
    const hide = (i, off) => rows.forEach(row => row.cells[i].classList.toggle("off", off));
    const wide = () => table.offsetWidth > box.clientWidth + 1;
    const fit = () => {
        const hidden = [];
        table.classList.remove("cards", "narrow");
        heads.forEach((_, i) => hide(i, false));
        if (!all)
            for (const column of leaving) {
                if (!wide()) break;
                hide(column.i, true);
                hidden.push(column);
            }
        table.classList.toggle("narrow", wide() && !all); // words in a cell below each other
        table.classList.toggle("cards", wide() && (!all || box.clientWidth < 600));
        const names = hidden.sort((a, b) => a.i - b.i).map(column => column.name).join(", ");
        note.replaceChildren(...(names ? [`Not shown at this width: ${names}. `] : []), ...(names || all ? [element("button", {type: "button", "aria-pressed": String(all), onclick: () => {
            all = !all;
            fit();
            note.querySelector("button")?.focus();
        }}, all ? "Only the columns that fit" : `All ${heads.length} columns`)] : []));
        note.hidden = !note.firstChild;
    };
    fit();
    resized(box, fit);
}

function fitTables() {
    for (const box of document.querySelectorAll(".wide")) fitTable(box, columnOrder[box.closest(".card").previousElementSibling.id]);
}
