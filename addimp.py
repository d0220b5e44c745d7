import sys,re
mod,name=sys.argv[1],sys.argv[2]
for p in sys.argv[3:]:
    s=open(p).read()
    m=re.search(rf"^from {re.escape(mod)} import \(\n((?:    .*\n)+)\)",s,re.M)
    if m:
        if re.search(rf"\b{name}\b",m.group(0)): continue
        s=s[:m.end(1)]+f"    {name},\n"+s[m.end(1):]
    else:
        m=re.search(rf"^from {re.escape(mod)} import (.*)$",s,re.M)
        if m:
            if re.search(rf"\b{name}\b",m.group(0)): continue
            s=s[:m.end()]+f", {name}"+s[m.end():]
        else:
            m=list(re.finditer(r"^from [\w.]+ import (?:\([^)]*\)|.*)$",s,re.M))[0]
            # insert before first 'from taskmq' else after first
            t=re.search(r"^from taskmq",s,re.M)
            at=t.start() if t else m.end()+1
            s=s[:at]+f"from {mod} import {name}\n"+s[at:]
    open(p,'w').write(s)
