// Roving focus: Tab reaches one item of a group, and the arrow keys move between its items.

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }; // across, down

// `next(item, key)` returns the item that a key leads to, or undefined. `selector` matches the group's items.
function rove(group, selector, next) {
  group.addEventListener("keydown", (event) => {
    const item = event.target.closest(selector);
    if (!item || event.ctrlKey || event.altKey || event.metaKey) return;
    const target = next(item, event.key);
    if (!target) return;
    event.preventDefault();
    moveTo(group, target);
  });
  group.addEventListener("focusin", (event) => {
    const item = event.target.closest(selector);
    if (item) makeReachable(group, item);
  });
}

function makeReachable(group, item) {
  group.querySelectorAll('[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
  item.tabIndex = 0;
}

function moveTo(group, item) {
  makeReachable(group, item);
  item.focus();
  item.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// Call `act` with the item that is pointed at, clicked or focused, and the event. When the page scrolls under a resting pointer,
// browsers report mouse moves without a change of position: those are ignored.
function pointing(group, selector, act) {
  let last = "";
  group.addEventListener("mousemove", (event) => {
    const position = `${event.screenX} ${event.screenY}`;
    if (position !== last) act(event.target.closest(selector), event);
    last = position;
  });
  for (const kind of ["focusin", "click"]) {
    group.addEventListener(kind, (event) => act(event.target.closest(selector), event));
  }
}

// The neighbor of an item in a list; `keys` are the keys for the previous and the next one.
function neighbor(items, item, key, keys) {
  const index = items.indexOf(item);
  if (key === "Home") return items[0];
  if (key === "End") return items[items.length - 1];
  if (key === keys[0]) return items[index - 1];
  if (key === keys[1]) return items[index + 1];
  return undefined;
}

// With the keyboard, a box without focusable content is scrolled while it has the focus itself.
function makeScrollable(box) {
  if (box.scrollHeight > box.clientHeight || box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
}
