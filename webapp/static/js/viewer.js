// Before Perfetto's viewer starts: it would look for a trace processor on this machine, ask its makers' server who uses
// it, and add a policy of its own. The page's policy allows none of it; here it is answered without a try.
"use strict";

function isHere(address) {
  return new URL(address, document.baseURI).origin === window.origin;
}

const fetchHere = window.fetch;
window.fetch = (what, how) => isHere(what.url || what) ? fetchHere(what, how) : Promise.reject(new TypeError("this page asks no other server"));

const source = Object.getOwnPropertyDescriptor(HTMLScriptElement.prototype, "src");
Object.defineProperty(HTMLScriptElement.prototype, "src", {
  ...source,
  set(address) {
    if (isHere(address)) source.set.call(this, address);
    else setTimeout(() => this.dispatchEvent(new Event("error")));
  },
});

Object.defineProperty(HTMLMetaElement.prototype, "httpEquiv", { set() {} });
