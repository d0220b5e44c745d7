import re,subprocess
files=subprocess.run("grep -rlE ' for ' taskmq/server --include=*.py",shell=True,capture_output=True,text=True).stdout.split()
skip=('examples','openapi','edge','counts','application','submissions','live/','inputs.py','figures.py','views.py')
n=0
for p in files:
    if any(x in p for x in skip) and 'figures' not in p: continue
    s=open(p).read(); o=s
    # [f(x) for x in EXPR] inside List/Entries constructors or returns
    def sub(m):
        return f"rendered({m.group('f')}, {m.group('e')})"
    pat=re.compile(r"\[(?P<f>_?[a-z]\w*)\((?P<x>\w+)\) for (?P=x) in (?P<e>[^\[\]\n]*?(?:\[[^\]\n]*\][^\[\]\n]*?)?)\](?=[,)\n])")
    lines=s.split('\n'); out=[]
    for l in lines:
        if re.search(r"(List\(|Entries\(|Versions\(|Groups\(|items=|items = |policies=|return \[_view\(|Lines\(|WorkerList)",l) and ' if ' not in l and 'dict' not in l:
            l=pat.sub(sub,l)
        out.append(l)
    s='\n'.join(out)
    if s!=o:
        open(p,'w').write(s); n+=1; print(p)
