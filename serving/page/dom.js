// Shorthands for the document.
export const find = (id) => document.getElementById(id);

// Makes an element with properties and children.
export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export const percent = (share) => `${(100 * share).toFixed(1)}%`;
