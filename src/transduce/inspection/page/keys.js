// Roving focus: of a group of things, one can be reached with Tab, and the arrows move between them.

// `next(item, key)` says where a key leads, or nothing. Items are what `selector` finds in the group.
function rove(group, selector, next) {
  group.addEventListener("keydown", (event) => {
    const item = event.target.closest(selector);
    if (!item || event.ctrlKey || event.altKey || event.metaKey) return;
    const goal = next(item, event.key);
    if (!goal) return;
    event.preventDefault();
    moveTo(group, selector, goal);
  });
  group.addEventListener("focusin", (event) => {
    const item = event.target.closest(selector);
    if (item) reachable(group, item);
  });
}

function reachable(group, item) {
  group.querySelectorAll('[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
  item.tabIndex = 0;
}

function moveTo(group, selector, item) {
  reachable(group, item);
  item.focus();
  item.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// `act` hears of what is pointed at, clicked or focused. When the page scrolls under a resting pointer, browsers
// report what comes to lie there: that is nobody's doing.
function pointing(group, selector, act) {
  let rest = "";
  group.addEventListener("mousemove", (event) => {
    const place = `${event.screenX} ${event.screenY}`;
    if (place !== rest) act(event.target.closest(selector));
    rest = place;
  });
  for (const kind of ["focusin", "click"]) {
    group.addEventListener(kind, (event) => act(event.target.closest(selector)));
  }
}

// The next one in a row of things; `keys` are the two that lead back and on.
function neighbour(items, item, key, keys) {
  const place = items.indexOf(item);
  if (key === "Home") return items[0];
  if (key === "End") return items[items.length - 1];
  if (key === keys[0]) return items[place - 1];
  if (key === keys[1]) return items[place + 1];
  return undefined;
}
