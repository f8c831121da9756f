// nav.js - the way around: a list of the sections that stays at hand, marks the one that is read, and leads back to the top.

function sectionList() {
    const heads = [...document.querySelectorAll("main h2[id]")], root = document.documentElement;
    const links = heads.map(head => element("a", {href: `#${head.id}`}, head.dataset.brief || head.textContent));
    const here = element("span"), list = element("ul", {id: "sections"}, ...links.map(link => element("li", {}, link)));
    const button = element("button", {type: "button", class: "where", "aria-expanded": "false", "aria-controls": "sections", onclick: () => open(button.getAttribute("aria-expanded") !== "true")}, "☰ ", here);
    const nav = element("nav", {"aria-label": "Sections"}, button, list, element("a", {class: "top", href: "#top", title: "Back to the top of the page"}, "↑ Top"));
    const open = wanted => {
        button.setAttribute("aria-expanded", String(wanted));
        nav.classList.toggle("open", wanted);
    };
    nav.addEventListener("click", event => { if (event.target.closest("a")) open(false); });
    nav.addEventListener("keydown", event => { if (event.key === "Escape") { open(false); button.focus(); } });
    document.addEventListener("pointerdown", event => { if (!nav.contains(event.target)) open(false); });
    heads[0].before(nav);
    const bar = document.querySelector(".bar");
    const measure = () => {
        root.style.setProperty("--nav", `${nav.offsetHeight}px`);
        root.style.setProperty("--bar", `${bar.offsetHeight}px`);
    };
    const mark = () => {
        const line = nav.offsetHeight + bar.offsetHeight + 40, end = scrollY > 0 && scrollY + innerHeight >= root.scrollHeight - 2;
        const passed = heads.filter(head => head.getBoundingClientRect().top <= line).length, now = end ? heads.length - 1 : Math.max(0, passed - 1);
        links.forEach((link, i) => i === now ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
        here.textContent = links[now].textContent;
    };
    let waiting = false;
    addEventListener("scroll", () => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => { waiting = false; mark(); });
    }, {passive: true});
    new ResizeObserver(measure).observe(nav);
    new ResizeObserver(measure).observe(bar);
    measure();
    mark();
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView(); // what it names was not there when the page was read
}
