--- set_mark: set a mark behind everything that was recorded and journaled: what sync destinations have up to there is told.
--- GIVES the mark, '' where no destination is waited for
--- FLAGS allow-oom
--- @include fail
if call('EXISTS', K.sync()) == 0 then return '' end
return call('XADD', K.marks(), 'MAXLEN', '~', V.marks, '*', F.what, 'mark')
