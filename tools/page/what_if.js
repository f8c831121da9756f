// what_if.js - the table of tensors of what-if.html: sorted by a column, and reduced to those that match.
"use strict";

const table = document.getElementById("tensors-table"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
const rows = [...body.rows], controls = document.getElementById("controls");

function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
        if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
        else made.setAttribute(name, value);
    made.append(...children);
    return made;
}

// --- sorting: cells with numbers have them in data-value, others are compared as texts ------------------------------

const key = (row, i) => {
    const {value} = row.cells[i].dataset;
    return value === undefined ? row.cells[i].firstChild.textContent : value === "" ? Infinity : Number(value);
};
const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b || (a === b ? 0 : 1);

function sortBy(i, descending) {
    const sorted = rows.map((row, place) => ({row, place, key: key(row, i)}));
    // What has no number stays last in either direction.
    const empty = entry => rows[entry.place].cells[i].dataset.value === "";
    sorted.sort((a, b) => empty(a) - empty(b) || (descending ? -1 : 1) * (empty(a) ? 0 : compare(a.key, b.key)) || a.place - b.place);
    body.append(...sorted.map(entry => entry.row));
    heads.forEach((head, k) => k === i ? head.setAttribute("aria-sort", descending ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
}

heads.forEach((head, i) => {
    if (head.dataset.sort === undefined) return;
    const button = element("button", {type: "button", class: "sort", title: "Sort by this column"}, ...head.childNodes);
    button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort"), first = head.dataset.sort === "down";
        sortBy(i, now ? now === "ascending" : first);
    });
    head.replaceChildren(button);
});

// --- which rows -----------------------------------------------------------------------------------------------------

const roles = [...new Set(rows.map(row => row.dataset.role))];
const role = element("select", {"aria-label": "Role", onchange: () => show()}, element("option", {value: ""}, "all roles"),
    ...roles.map(name => element("option", {value: name}, name)));
const name = element("input", {type: "search", placeholder: "name contains …", "aria-label": "Name", oninput: () => show()});
const shown = element("span", {role: "status"});

function show() {
    let count = 0;
    for (const row of rows) {
        const fits = (!role.value || row.dataset.role === role.value) && row.cells[0].firstChild.textContent.includes(name.value.trim());
        row.hidden = !fits;
        count += fits;
    }
    shown.textContent = `${count} of ${rows.length} tensors`;
}
controls.append(role, name, shown);
show();
