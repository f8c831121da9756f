// start.js - puts the figures into the page, and draws them anew when light turns to dark.

document.getElementById("figures").append(seriesBar(), ...curves(), ...lanes(), ...histograms(), ...shadowFormats(), ...updates(), ...layers());
if (document.getElementById("paired") && data.baseline >= 0) pairedFigure(document.getElementById("paired"));

// A sample of each line in the tables whose rows are formats.
function samples() {
    document.querySelectorAll("#summary tbody tr").forEach((row, i) => {
        row.cells[0].querySelector("svg")?.remove();
        row.cells[0].prepend(sample(i));
    });
}
samples();
fitTables();
sectionList();
schemeChanged(() => { samples(); redraw(); });
